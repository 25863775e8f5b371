"""Wire parties, transports and methods into runs. Import from the modules: each pulls in only what it needs."""

__all__: list[str] = []
