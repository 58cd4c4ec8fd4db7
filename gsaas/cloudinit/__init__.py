"""What a server is told at boot: user data, a dict in and text out. Begin with `render`."""
