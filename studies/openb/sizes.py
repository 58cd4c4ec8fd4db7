"""How large a share is on a GPU: what the trace leaves open.

The trace says which thousandths of a GPU a task asks for, and nothing of GPU memory. There are two ways to read it:

    thousandths  of whichever GPU the task gets: so its authors simulate it
    MiB          of the memory of one model, the T4: so GSaaS sells shares; a larger GPU holds more of them

Under the second a whole GPU is still a whole one, whatever its model.
"""

from __future__ import annotations

from dataclasses import dataclass

from studies.openb.trace import WHOLE, Node

MEMORY_MB = {
    "T4": 15_109,
    "V100M16": 16_160,
    "P100": 16_280,
    "G2": 20_000,
    "A10": 22_731,
    "G3": 30_000,
    "V100M32": 32_510,
}
"""As CUDA reports them; G2 and G3, which the trace hides, as its authors' simulator takes them."""


@dataclass(frozen=True)
class Sizes:
    """Shares in MiB of a GPU with *reference* MiB; None: in thousandths of whichever GPU."""

    reference: int | None = None

    def of_gpu(self, node: Node) -> int:
        """What one GPU of *node* has, in the unit of shares."""
        return WHOLE if self.reference is None else MEMORY_MB[node.model]

    def of_share(self, milli: int) -> int:
        """What a task that asks for *milli* thousandths, less than a whole GPU, takes of one."""
        return milli if self.reference is None else max(milli * self.reference // WHOLE, 1)

    def on(self, node: Node, milli: int) -> int:
        """The same in thousandths of a GPU of *node*, rounded up."""
        if milli in (0, WHOLE) or self.reference is None:
            return milli
        return -(-self.of_share(milli) * WHOLE // self.of_gpu(node))


THOUSANDTHS = Sizes()
MIB = Sizes(MEMORY_MB["T4"])
