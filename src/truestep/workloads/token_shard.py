# SPDX-License-Identifier: Apache-2.0
"""A shard of token ids, checked before an embedding reads from it.

An id outside the vocabulary kills a compiled look-up with a message that tells nothing; a negative
one silently reads a wrong row on the host. Both are seen here, with the place; damage that leaves
an id legal is seen by the digest of the whole shard.

A check is an `Observation` like any other. Its only party is the input itself, so that judging
files damage as damage of the input, and clears every device that would have computed with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from truestep.backends.digest_numpy import digest_many
from truestep.numerics.compare import compare
from truestep.observation import Miscompare, Observation, Party, Role
from truestep.reference import Reference, ReferenceKind

Tokens = npt.NDArray[Any]


def check(
    tokens: Tokens,
    *,
    vocabulary_size: int,
    digest: str,
    shard: str,
    host: str,
    rank: int,
    offset: int = 0,
) -> tuple[Observation, ...]:
    """What is wrong with the shard: two observations, by range and by digest.

    Args:
        tokens: Ids of any integer dtype and shape, as they are about to be used.
        vocabulary_size: Ids must lie in [0, vocabulary_size).
        digest: Digest of the shard when it was written, by `numerics.digest`.
        shard: Name of the shard.
        host: Host that holds it.
        rank: Rank that is about to use it.
        offset: Position in the shard of the first of `tokens`, in tokens.

    Guarantees: neither observation has a miscompare exactly if the shard may be used.
    """
    largest = min(vocabulary_size - 1, np.iinfo(tokens.dtype).max)
    legal = np.clip(tokens, 0, largest)
    outside = compare(tokens, legal)
    where = {"rank": str(rank), "shard": shard}
    place = {"offset": str(offset + outside.positions[0])} if outside is not None else {}
    found = compare(_words(digest_many([tokens])[0]), _words(digest))
    party = Party(device=host, unit=shard, role=Role.INPUT)
    return (
        _observation("range", f"0 <= id < {vocabulary_size}", outside, party, where | place),
        _observation("digest", "the digest of the shard when it was written", found, party, where),
    )


def _words(digest: str) -> Tokens:
    """A digest as two words, so that it is compared like all else."""
    return np.array([int(digest[:16], 16), int(digest[16:], 16)], dtype=np.uint64)


def _observation(
    kind: str, provenance: str, found: Miscompare | None, party: Party, where: Mapping[str, str]
) -> Observation:
    return Observation(
        name="token_shard",
        reference=Reference(kind=ReferenceKind.INVARIANT, provenance=provenance),
        parties=(party,),
        site=f"input/{kind}",
        value_class="token_ids",
        value=0.0 if found is None else 1.0,
        num_comparisons=1,
        miscompare=found,
        coverage=where,
    )
