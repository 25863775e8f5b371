"""Short protocols that several methods share.

A method lists the messages of those it uses among its own.
"""

__all__: list[str] = []
