"""What the interpreter knows about variables: values, tensors, scopes, and the facts it collects."""
