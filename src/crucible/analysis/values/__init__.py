"""What the interpreter knows of a variable: values, tensors, scopes, and the facts it collects."""
