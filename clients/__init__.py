"""Who speaks, who listens, who chooses and calls: registration, directory, and the command `adsum`."""

from adsum.events.broker import BrokerSettings
from adsum.events.description import Description, Endpoint
from adsum.events.errors import AdsumError, BrokerRefused, BrokerUnavailable, InvalidValue
from adsum.events.lifecycle import Health, Mode
from adsum.events.names import Key
from adsum.events.signals import Departed, Instance, Liveness

from .cache import Change
from .changes import Changes
from .directory import Directory
from .errors import LifeEnded, NotLoaded, Removed, Superseded
from .registration import Registration
from .registry import Registry, connect

__all__ = [
    "AdsumError",
    "BrokerRefused",
    "BrokerSettings",
    "BrokerUnavailable",
    "Change",
    "Changes",
    "Departed",
    "Description",
    "Directory",
    "Endpoint",
    "Health",
    "Instance",
    "InvalidValue",
    "Key",
    "LifeEnded",
    "Liveness",
    "Mode",
    "NotLoaded",
    "Registration",
    "Registry",
    "Removed",
    "Superseded",
    "connect",
]
