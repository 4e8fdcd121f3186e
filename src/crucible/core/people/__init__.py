"""Users, projects, permissions, secrets, and sign-in with an OpenID provider."""
