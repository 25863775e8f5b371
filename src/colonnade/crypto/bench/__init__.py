"""Benchmarks that the installed command can run. Import from the modules: each pulls in only what it needs."""

__all__: list[str] = []
