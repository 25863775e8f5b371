"""A party's side of a run: channels, handshake, policy, seeds, metrics, checkpoints."""

from colonnade.session.channel import Channel
from colonnade.session.checkpoints import CheckpointStore, highest_common
from colonnade.session.control import CONTROL
from colonnade.session.event_log import EventLog
from colonnade.session.files import read_json, write_json, write_whole
from colonnade.session.method import Figure, Finding, Holding, Method, Pair, Result, Role, RoleFunction, Stage
from colonnade.session.metrics_log import MetricsLog
from colonnade.session.model_part import ModelPart
from colonnade.session.party import Participant, Party, parties_of
from colonnade.session.plan import ALIGN, SPLITS, Alignment, Evaluate, RunPlan, check_name
from colonnade.session.play import play, taking_part
from colonnade.session.policy import Policy, PolicyRules
from colonnade.session.scored_rows import ScoredRows
from colonnade.session.scores import PROBABILITY, Scores
from colonnade.session.scripted import ScriptedLink
from colonnade.session.seeds import derive_seed
from colonnade.session.session import Observer, Progress, Session

__all__ = [
    "ALIGN",
    "CONTROL",
    "PROBABILITY",
    "SPLITS",
    "Alignment",
    "Channel",
    "CheckpointStore",
    "Evaluate",
    "EventLog",
    "Figure",
    "Finding",
    "Holding",
    "Method",
    "MetricsLog",
    "ModelPart",
    "Observer",
    "Pair",
    "Participant",
    "Party",
    "Policy",
    "PolicyRules",
    "Progress",
    "Result",
    "Role",
    "RoleFunction",
    "RunPlan",
    "ScoredRows",
    "Scores",
    "ScriptedLink",
    "Session",
    "Stage",
    "check_name",
    "derive_seed",
    "highest_common",
    "parties_of",
    "play",
    "read_json",
    "taking_part",
    "write_json",
    "write_whole",
]
