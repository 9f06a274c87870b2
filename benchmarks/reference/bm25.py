"""Task 2 as the published harness does it: tokenizes the README and builds an index anew for every row."""

from punkt import PunktSentenceTokenizer, load_model
from rank_bm25 import BM25Okapi


def best_window(readme: str, instruction: str, tokenizer: PunktSentenceTokenizer) -> str:
    """The window of ten sentences that answers the instruction best, as words with single spaces."""
    sentences = tokenizer.tokenize(readme)[:1000]
    windows = [" ".join(sentences[start : start + 10]).split() for start in range(len(sentences))]
    [best] = BM25Okapi(windows).get_top_n(instruction.split(), windows, n=1)
    return " ".join(best)


def sentence_tokenizer() -> PunktSentenceTokenizer:
    """NLTK's English punkt model, loaded once: the harness does not pay for that at every row either."""
    return PunktSentenceTokenizer(load_model("english"))
