"""GraphKit: small graph learning examples on numpy."""

from graphkit.graphs import Graph, synthesize
from graphkit.optimizer import Adam
from graphkit.propagation import normalize

__all__ = ["Adam", "Graph", "normalize", "synthesize"]
__version__ = "0.3.1"
