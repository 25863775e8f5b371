"""Ciphertexts, keys and masks. No torch here.

So far only the seam that messages need: what it is to be a ciphertext. Paillier arrays arrive behind it.
"""

from colonnade.crypto.ciphertext import Ciphertext

__all__ = ["Ciphertext"]
