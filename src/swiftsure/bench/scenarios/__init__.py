"""Whole uses of a model, not single answers: is this endpoint fast enough to be used interactively, or is it one for the background?"""

from swiftsure.bench.scenarios.agent import agent
from swiftsure.bench.scenarios.base import Answer, Asker, Figure
from swiftsure.bench.scenarios.rag import rag
from swiftsure.bench.scenarios.reasoning import reasoning
from swiftsure.bench.scenarios.voice import voice

__all__ = ["Answer", "Asker", "Figure", "agent", "rag", "reasoning", "voice"]
