"""Scripts run by a peer's own interpreter; they import the peer, the standard library and `interop.canonical`."""
