"""The plugin `gpu-load` in Python: prefers nodes whose GPUs have little to do, by a label from 0 (idle) to 100 (full)."""

import json

from wit_world import exports
from wit_world.exports.plugin import Normalization, Scope, Settings
from wit_world.imports import host

FULL = 100

label = "gpu.example.com/load"


class Plugin(exports.Plugin):
    def init(self, args: str) -> Settings:
        global label
        label = json.loads(args).get("label", label)
        host.log(host.Level.INFO, f"nodes are ranked by {label}")
        return Settings(scope=Scope.NODE, normalization=Normalization.NONE)


class Score(exports.Score):
    def score(self, pod, nodes) -> list[int]:
        return [FULL - load(node) for node in nodes]


def load(node) -> int:
    """The load that the label of the node says; a node without the label counts as full."""
    value = dict(node.labels).get(label, "")
    return min(FULL, int(value)) if value.isdigit() else FULL
