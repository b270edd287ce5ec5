"""The group: the ranks of one learner, processes with parameters of one value and rows of their own.

Rank 0 is the learner: it alone is granted updates, publishes, saves and reports, and says what all do next. The others draw
batches of their own and do as they are told. Gradients are means over the rows of all ranks, so one update of G ranks with B
rows each is that of one rank with G x B rows. Who is lost or silent ends the group; it begins again from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor

from headrace.common.errors import ConfigError, GroupLost
from headrace.common.process import mortal
from headrace.learner.config import CPU, CUDA
from headrace.learner.place import Place

BACKENDS = {CPU: "gloo", CUDA: "cpu:gloo,cuda:nccl"}  # orders are said by processors


class Order(IntEnum):
    """What rank 0 has all ranks do next."""

    WAIT = 0
    UPDATE = 1
    STOP = 2
    WEIGHTS = 3  # gather the policy
    STATE = 4  # gather everything


class Group:
    """One rank's side of its group; a group of one needs nobody and does nothing.

    Attributes:
        rank: 0 is the learner.
        size: G ranks.

    Args:
        rank, size: of a process group that was joined, see :meth:`join`.
        timeout_s: longest wait for another rank (s).
    """

    def __init__(self, rank: int = 0, size: int = 1, timeout_s: float = math.inf) -> None:
        self.rank, self.size, self._timeout_s = rank, size, timeout_s

    @classmethod
    @contextlib.contextmanager
    def join(cls, timeout_s: float, device: str = CPU) -> Iterator[Group]:
        """The group that ``torchrun`` or ``headrace train`` put this process in, or a group of one.

        Raises:
            ConfigError: variables of theirs that are no numbers.
            GroupLost: the others did not come within ``timeout_s``.
        """
        place = Place.here()
        if place.size == 1:
            yield cls()
            return
        group = cls(place.rank, place.size, timeout_s)
        with group._together("meet"), mortal():
            _meet(place, BACKENDS[device], timedelta(seconds=timeout_s))
        try:
            with group._together("go on", when=_of_group):  # what gathers shards does so unseen by this class
                yield group
        finally:
            with contextlib.suppress(RuntimeError):  # a lost rank has said so already
                dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this is the learner."""
        return self.rank == 0

    def order(self, order: Order = Order.WAIT) -> Order:
        """What rank 0 says; the others' argument counts for nothing."""
        if self.size == 1:
            return order
        said = torch.tensor([order], dtype=torch.int64)
        self._broadcast(said)
        return Order(int(said))

    @torch.inference_mode()
    def mean(self, tensors: Sequence[Tensor], rows: int, sums: Sequence[Tensor] = ()) -> None:
        """Put in place of each tensor, a mean over this rank's ``rows``, that over the rows of all ranks.

        One flat sum. A rank of 0 rows counts nothing, whatever its tensors hold; where no rank has rows the result is NaN.

        Args:
            tensors: float32.
            rows: at least 0.
            sums: sums over the rows of all ranks already, which become means too.
        """
        if self.size == 1:
            return
        if rows == 0:
            for tensor in tensors:
                tensor.zero_()
        flat = torch.cat([*(t.reshape(-1) for t in tensors), tensors[0].new_ones(1)]).mul_(rows)
        with self._together("sum gradients"):
            dist.all_reduce(flat)
        total = flat[-1].clone()
        flat.div_(total)
        for tensor in sums:
            tensor.div_(total)
        first = 0
        for tensor in tensors:
            tensor.copy_(flat[first : first + tensor.numel()].view_as(tensor))
            first += tensor.numel()

    @torch.inference_mode()
    def norm(self, own: Tensor) -> Tensor:
        """() Euclidean norm of all ranks' numbers, of the norm () of this rank's."""
        squares = own.square()
        if self.size > 1:
            with self._together("sum norms"):
                dist.all_reduce(squares)
        return squares.sqrt()

    def copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite every rank's tensors with those of rank 0."""
        if self.size > 1:
            for tensor in tensors:
                self._broadcast(tensor)

    def _broadcast(self, tensor: Tensor) -> None:
        with self._together("hear rank 0"):
            dist.broadcast(tensor, 0)

    @contextlib.contextmanager
    def _together(self, what: str, when: Callable[[Exception], bool] = lambda error: True) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, dist.DistError) as error:  # gloo says so with either
            if not when(error):
                raise
            reason = str(error).splitlines()[0][:300]
            raise GroupLost(
                f"rank {self.rank} of {self.size} could not {what}: a rank is gone, or silent for {self._timeout_s:g} s"
                f" (learner.rank_timeout_s): {reason}"
            ) from error


def _of_group(error: Exception) -> bool:
    """Whether it comes of other ranks, and not of what this one does by itself."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def find_device(device: str) -> torch.device:
    """The device of this rank.

    Raises:
        ConfigError: there is no GPU for it.
    """
    if device == CPU:
        return torch.device(CPU)
    rank = Place.here().local_rank
    require_gpu(device, rank)
    torch.cuda.set_device(rank)
    return torch.device(device, rank)


def require_gpu(device: str, rank: int) -> None:
    """Refuse a GPU that rank ``rank`` of this host would not have.

    Raises:
        ConfigError: there is no GPU for it.
    """
    found = torch.cuda.device_count()
    if rank >= found:
        few = f", or learner.ranks {found}" if found else ""
        raise ConfigError(
            f"learner.device: {device}, but torch sees {found} GPUs and this is rank {rank} of the host;"
            f" nearest valid: {CPU}{few}"
        )


def _meet(place: Place, backend: str, timeout: timedelta) -> None:
    if not place.meeting:
        dist.init_process_group(backend, timeout=timeout)
        return
    store = dist.FileStore(place.meeting, place.size)  # type: ignore[attr-defined]  # public, but its package lists no names
    store.set_timeout(timeout)
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=timeout)
