"""What a server's backend asks of an ssh host: facts, and the launch, state and end of machines there."""
