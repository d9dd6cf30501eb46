"""Who speaks, who listens, who chooses and asks: registration, directory, history, and the command `adsum`."""

from adsum.events.broker import BrokerSettings
from adsum.events.config import Config, load_config
from adsum.events.description import FLIGHT_ACTION, GRPC_HEALTH, Description, Endpoint
from adsum.events.errors import (
    AdsumError,
    BeforeLog,
    BrokerRefused,
    BrokerUnavailable,
    InvalidValue,
    NobodyAnswers,
    NoLongerKept,
    NotYet,
    QuestionRefused,
)
from adsum.events.lifecycle import Health, Mode
from adsum.events.names import Key
from adsum.events.questions import EventsAsked, Logged, Moment, Page, Status, Version, VersionsAsked
from adsum.events.signals import Departed, Instance, Liveness

from .bootstrap import Member, bootstrap
from .cache import Change
from .changes import Changes
from .choosing import (
    Call,
    ConsistentHash,
    LeastOutstanding,
    LowestLatency,
    Outliers,
    Picked,
    PickFirst,
    Policy,
    RandomChoice,
    RoundRobin,
    Selection,
    WeightedRoundRobin,
    ZonePreferring,
)
from .directory import Directory
from .errors import (
    Expired,
    LifeEnded,
    NobodyToCall,
    NoneRegistered,
    NoneRoutable,
    NotItself,
    NotLoaded,
    Removed,
    Superseded,
    Unconfirmed,
    Unreachable,
)
from .history import History
from .leases import Lease, Leases
from .peers import IDENTITY, Blame, Dialer, Identified, Peer, Peers, add_health, flight, grpc, http
from .registration import Registration
from .registrations import Registrations
from .registry import Registry, connect
from .serving import serving
from .watching import Watch

__all__ = [
    "FLIGHT_ACTION",
    "GRPC_HEALTH",
    "IDENTITY",
    "AdsumError",
    "BeforeLog",
    "Blame",
    "BrokerRefused",
    "BrokerSettings",
    "BrokerUnavailable",
    "Call",
    "Change",
    "Changes",
    "Config",
    "ConsistentHash",
    "Departed",
    "Description",
    "Dialer",
    "Directory",
    "Endpoint",
    "EventsAsked",
    "Expired",
    "Health",
    "History",
    "Identified",
    "Instance",
    "InvalidValue",
    "Key",
    "Lease",
    "Leases",
    "LeastOutstanding",
    "LifeEnded",
    "Liveness",
    "Logged",
    "LowestLatency",
    "Member",
    "Mode",
    "Moment",
    "NoLongerKept",
    "NobodyAnswers",
    "NobodyToCall",
    "NoneRegistered",
    "NoneRoutable",
    "NotItself",
    "NotLoaded",
    "NotYet",
    "Outliers",
    "Page",
    "Peer",
    "Peers",
    "PickFirst",
    "Picked",
    "Policy",
    "QuestionRefused",
    "RandomChoice",
    "Registration",
    "Registrations",
    "Registry",
    "Removed",
    "RoundRobin",
    "Selection",
    "Status",
    "Superseded",
    "Unconfirmed",
    "Unreachable",
    "Version",
    "VersionsAsked",
    "Watch",
    "WeightedRoundRobin",
    "ZonePreferring",
    "add_health",
    "bootstrap",
    "connect",
    "flight",
    "grpc",
    "http",
    "load_config",
    "serving",
]
