"""SpeechLab: features, vocoders, augmentation and keyword recipes on synthetic speech."""

from speechlab.utterances import SAMPLE_RATE, WORDS, utterance

__all__ = ["SAMPLE_RATE", "WORDS", "utterance"]
__version__ = "0.4.0"
