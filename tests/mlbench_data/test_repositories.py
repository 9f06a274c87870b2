"""The paper's repositories, and a user's own."""

from pathlib import Path

import pytest

from mlbench_data.bad_input import BadInput
from mlbench_data.repositories import read_repositories

OWN = "mine: {url: 'https://example.org/mine', commit: '%s', domain: text, role: test}\n" % ("a" * 40)


def test_the_paper_has_18_with_14_for_testing() -> None:
    found = read_repositories()
    assert len(found) == 18
    assert sum(item.role == "test" for item in found.values()) == 14
    assert len({item.commit for item in found.values()}) == 18
    tested = [item.github_id for item in found.values() if item.role == "test"]
    assert sorted(map(int, filter(None, tested))) == [*range(1, 12), 13, 14, 15]
    assert found["external-attention-pytorch"].test_readme == "README_EN.md"


def test_rows_of_the_published_split_find_their_repository(shared_data: Path) -> None:
    from mlbench_data.rows import read_rows

    found = read_repositories()
    for row in read_rows(shared_data / "mlbench" / "rows.jsonl"):
        assert found[row.repository.lower()].github_id == row.github_id
        assert found[row.repository.lower()].url.lower() == row.github.lower()


def test_a_file_of_ones_own_adds_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN + OWN.replace("mine:", "dgl:"))
    found = read_repositories(path)
    assert len(found) == 19
    assert found["dgl"].commit == found["mine"].commit == "a" * 40


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- one\n", "no repositories; expected NAME"),
        ("mine: {url: here}\n", "mine: expected commit, domain, role, url, and perhaps"),
        (OWN.replace("url:", "ulr: x, url:"), "mine: expected commit"),
        (OWN.replace("a" * 40, "abc"), "commit is 'abc'; expected 40 hexadecimal digits"),
        (OWN.replace("role: test", "role: train"), "role is 'train'; expected test or ood"),
        (OWN.replace("mine:", "../mine:"), "not a name of a repository"),
        (OWN.replace("role: test", "role: test, readme: ../../etc/passwd"), "is not inside the repository"),
        (OWN.replace("'" + "a" * 40 + "'", "1234567"), "commit is 1234567; expected text"),
        ("mine: [\n", "not YAML"),
        (OWN.replace("https://example.org/mine", "--upload-pack=touch x;"), "expected an address such as"),
    ],
)
def test_a_wrong_description_says_what_is_wrong(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(BadInput) as refused:
        read_repositories(tmp_path / "own.yaml")
    assert error in str(refused.value)
    assert "\n" not in str(refused.value)
