"""How the chunks of a store's arrays are encoded.

A store's documents name the codec of each array by its chain, so that stores of older releases are
read with the codec that wrote them; new ones are written with :data:`WRITTEN`. A new codec is a
class like :class:`BloscLz4` and its place in :data:`CODECS`.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, Protocol

import numpy as np
from numcodecs import Blosc, blosc
from numpy.typing import NDArray

Buffer = bytes | memoryview
BLOSC_HEADER = struct.Struct("<4s3I")  # flags; bytes decoded, of a block, encoded

blosc.use_threads = False  # with its own threads the encoded bytes differ from run to run


class Codec(Protocol):
    """Makes bytes of the values of a chunk and values of the bytes, without a checksum."""

    chain: tuple[str, ...]  # its names in an array's document, between "bytes" and "crc32c"

    def encode(self, values: NDArray[Any]) -> bytes:
        """Return the bytes of a chunk, C-contiguous."""

    def decode(self, body: Buffer, out: NDArray[Any]) -> None:
        """Write the values of a chunk to `out`, C-contiguous.

        Parameters
        ----------
        body : bytes or memoryview
            What was encoded.
        out : array
            Receives the values.

        Raises
        ------
        ValueError, RuntimeError
            If the bytes are not those of just such a chunk.
        """

    def document(self, dtype: np.dtype[np.generic]) -> list[Any]:
        """Return the codecs as zarr-python takes them."""


class BloscLz4:
    """Blosc with lz4 behind a shuffle."""

    chain: tuple[str, ...] = ("blosc",)

    def encode(self, values: NDArray[Any]) -> bytes:
        """Return the bytes of a chunk."""
        mode = Blosc.SHUFFLE if _shuffle_of(values.dtype) == "shuffle" else Blosc.BITSHUFFLE
        return bytes(Blosc("lz4", 5, mode).encode(values))

    def decode(self, body: Buffer, out: NDArray[Any]) -> None:
        """Write the values of a chunk to `out`: blosc's own header says where its bytes end."""
        if len(body) < BLOSC_HEADER.size:
            raise ValueError("it has no header")
        _, decoded, _, packed = BLOSC_HEADER.unpack_from(body)
        if decoded != out.nbytes or packed != len(body):
            raise ValueError(f"{decoded:,} bytes, not {out.nbytes:,}")
        blosc.decompress(body, out)

    def document(self, dtype: np.dtype[np.generic]) -> list[Any]:
        """Return the codec as zarr-python takes it."""
        import zarr.codecs  # where stores are written: chunks are read without it

        return [zarr.codecs.BloscCodec(cname="lz4", clevel=5, shuffle=_shuffle_of(dtype))]


def _shuffle_of(dtype: np.dtype[np.generic]) -> Literal["shuffle", "bitshuffle"]:
    """Return the shuffle that lz4 does best with: bytes of wide integers, bits of the rest."""
    return "shuffle" if dtype.kind in "iu" and dtype.itemsize >= 4 else "bitshuffle"


WRITTEN: Codec = BloscLz4()
CODECS: tuple[Codec, ...] = (WRITTEN,)


def codec_of(names: list[str | None]) -> Codec | None:
    """Return the codec that an array's document names by its whole chain, or None."""
    return next((c for c in CODECS if names == ["bytes", *c.chain, "crc32c"]), None)
