# SPDX-License-Identifier: Apache-2.0
"""The size of a share of a GPU, which the trace leaves open.

The trace says how many thousandths of a GPU a task asks for, and nothing about GPU memory. Two readings are possible:

    thousandths  of whichever GPU the task gets, as its authors simulate it
    MiB          of the memory of one model, the T4, as GSaaS gives shares; a GPU with more memory has room for more

With the second one a task that asks for a whole GPU still gets a whole GPU, of any model.
"""

from __future__ import annotations

from dataclasses import dataclass

from studies.openb.trace import WHOLE, OpenbNode

MEMORY_MB = {
    "T4": 15_109,
    "V100M16": 16_160,
    "P100": 16_280,
    "G2": 20_000,
    "A10": 22_731,
    "G3": 30_000,
    "V100M32": 32_510,
}
"""MiB of each model, as CUDA reports them; for the pseudonyms G2 and G3 as the authors' simulator has them."""


@dataclass(frozen=True)
class ShareSizes:
    """The unit of shares: MiB of a GPU with *reference* MiB or, if that is None, thousandths of any GPU."""

    reference: int | None = None

    def of_gpu(self, node: OpenbNode) -> int:
        """Return the size of one GPU of *node*, in the unit of shares."""
        return WHOLE if self.reference is None else MEMORY_MB[node.model]

    def of_share(self, milli: int) -> int:
        """Return the size of a share of *milli* thousandths, less than a whole GPU, in the unit of shares."""
        return milli if self.reference is None else max(milli * self.reference // WHOLE, 1)

    def milli_on(self, node: OpenbNode, milli: int) -> int:
        """Return the thousandths that a request for *milli* takes of a GPU of *node*, rounded up."""
        if milli in (0, WHOLE) or self.reference is None:
            return milli
        return -(-self.of_share(milli) * WHOLE // self.of_gpu(node))


THOUSANDTHS = ShareSizes()
MIB = ShareSizes(MEMORY_MB["T4"])
