"""Choosing whom to call: a selection over a directory, the policies it picks by, the outliers it leaves out."""

from .call import Call
from .hashing import ConsistentHash
from .outliers import Outliers
from .plain import LeastOutstanding, LowestLatency, PickFirst, RandomChoice
from .policy import Picked, Policy
from .selection import Selection
from .turns import RoundRobin, WeightedRoundRobin
from .zones import ZonePreferring

__all__ = [
    "Call",
    "ConsistentHash",
    "LeastOutstanding",
    "LowestLatency",
    "Outliers",
    "PickFirst",
    "Picked",
    "Policy",
    "RandomChoice",
    "RoundRobin",
    "Selection",
    "WeightedRoundRobin",
    "ZonePreferring",
]
