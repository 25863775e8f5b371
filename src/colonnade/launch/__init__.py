"""Wire parties, transports and methods into runs: simulated, from files, or one party of a real one.

Import from the modules: each pulls in only what it needs.
"""

__all__: list[str] = []
