"""What a run would ask, before anything is loaded: the first prompt, the tokens, and what would be cut."""

from typing import Any

from infer.engines.interface import Sampling, requests_of
from mlbench_data.prompts import Prompt


def print_plan(prompts: list[Prompt], tokenizer: Any, sampling: Sampling, context: int) -> None:
    """Prints the plan of a run on stdout."""
    first = prompts[0]
    lengths = sorted(map(len, prompts))
    requests = requests_of(prompts, sampling.seed)
    once = {request.readme: request.shared for request in requests}
    unique = sum(once.values()) + sum(len(one.prompt) - one.shared for one in requests)
    print(f"--- the first prompt, of row {first.row.key.github_id}/{first.row.key.id}, {len(first):,} tokens")
    print(tokenizer.decode(first.token_ids))
    print("---")
    print(f"{len(prompts):,} rows × {sampling.n} candidates of up to {sampling.max_new_tokens} tokens")
    print(
        f"prompts: {sum(lengths):,} tokens, {unique:,} if each README is read once; the longest has "
        f"{lengths[-1]:,}, the median {lengths[len(lengths) // 2]:,}, the context {context:,}"
    )
    cut = [prompt for prompt in prompts if prompt.cut.kept < prompt.cut.readme]
    print(f"cut: {len(cut)} rows lose part of what they read" + (":" if cut else ""))
    by_repository: dict[str, list[Prompt]] = {}
    for prompt in cut:
        by_repository.setdefault(prompt.row.repository, []).append(prompt)
    for repository, found in by_repository.items():
        most = max(prompt.cut.readme - prompt.cut.kept for prompt in found)
        whole = max(prompt.cut.readme for prompt in found)
        print(f"  {repository}: {len(found)} rows, up to {most:,} of {whole:,} tokens")
    print("nothing was loaded or written")
