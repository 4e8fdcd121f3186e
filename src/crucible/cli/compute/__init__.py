"""Commands about where jobs run and what that costs."""
