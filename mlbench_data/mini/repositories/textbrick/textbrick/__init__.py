"""TextBrick: the building blocks of a masked language model, small enough to read."""

from textbrick.encoder import BrickConfig, BrickModel
from textbrick.vocabulary import Vocabulary, build_vocabulary

__all__ = ["BrickConfig", "BrickModel", "Vocabulary", "build_vocabulary"]
__version__ = "1.2.0"
