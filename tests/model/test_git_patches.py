"""Patches in git's format become changes of files."""

from segue.model.content import Diff
from segue.model.tools.git_patches import git_diffs


def test_each_hunk_is_a_diff_of_its_file() -> None:
    patch = (
        "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n"
        "@@ -1,2 +1,2 @@\n same\n-old\n+new\n@@ -9 +9 @@\n-x\n+y\n"
        "diff --git a/b.py b/b.py\nnew file mode 100644\n--- /dev/null\n+++ b/b.py\n"
        "@@ -0,0 +1 @@\n+text\n"
    )
    assert git_diffs(patch) == [
        Diff(path="/src/a.py", old="same\nold\n", new="same\nnew\n"),
        Diff(path="/src/a.py", old="x\n", new="y\n"),
        Diff(path="/b.py", new="text\n"),
    ]


def test_deleted_file_keeps_its_path() -> None:
    patch = (
        "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert git_diffs(patch) == [Diff(path="/a", old="x\n", new="")]


def test_missing_newline_at_the_end_belongs_to_the_line_before() -> None:
    patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"
    assert git_diffs(patch) == [Diff(path="/a", old="x", new="y\n")]
