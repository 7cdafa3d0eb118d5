"""The site as a whole: it builds, its links lead somewhere, and nothing in it comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs_pages import ROOT, name_of, pages

from trunkline.cli.reference.pages import MAKERS, PLACE, filled
from trunkline.core.errors import Invalid

_LINK = re.compile(r"\]\((?!https?:|#|<)([^)#\s]+)")
_FILE = re.compile(r"`((?:src|tests|docs|benchmarks|scripts)/[\w./-]+)`")
_ELSEWHERE = re.compile(r"""(?:src|href)=["']?(?:https?:)?//|url\(["']?https?:""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
        "--site-dir",
        str(out),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return out


def test_it_builds_with_every_page_and_no_broken_link(site: Path) -> None:
    written = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in pages() if page.is_relative_to(ROOT / "docs")}
    assert written <= {page.relative_to(site) for page in site.rglob("*.html")}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    found = [(page.name, hit[0]) for page in site.rglob("*.html") for hit in _ELSEWHERE.finditer(page.read_text())]
    assert found == []


def test_no_place_is_left_to_fill(site: Path) -> None:
    assert [page.name for page in site.rglob("*.html") if "<!-- made:" in page.read_text()] == []


def test_the_hook_s_own_file_is_not_part_of_the_site(site: Path) -> None:
    assert list(site.rglob("*.py")) == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_relative_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text()
    wanted = [page.parent / link for link in _LINK.findall(text)] + [ROOT / file for file in _FILE.findall(text)]
    assert [str(file) for file in wanted if not file.exists() and not _is_made(file)] == []


def _is_made(file: Path) -> bool:
    return "benchmarks/results" in str(file)


def test_every_maker_is_used_by_some_page() -> None:
    used = {found[1] for page in pages() for found in PLACE.finditer(page.read_text())}
    assert used == set(MAKERS)


def test_a_place_that_nothing_fills_is_refused() -> None:
    with pytest.raises(Invalid, match="nothing is made under this name"):
        filled("<!-- made: wishes -->", ROOT)


def test_what_stands_around_a_place_stays() -> None:
    before, _, after = filled("# Above\n\n<!-- made: api-problems -->\n\nBelow.\n", ROOT).partition("| status |")
    assert before == "# Above\n\n"
    assert after.endswith("|\n\nBelow.\n")
