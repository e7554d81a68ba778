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


def test_only_newlines_end_a_line() -> None:
    patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\x0cy\r\n+x\u2028y\r\n"
    assert git_diffs(patch) == [Diff(path="/a", old="x\x0cy\r\n", new="x\u2028y\r\n")]


def test_empty_line_in_a_hunk_is_an_empty_line_of_the_file() -> None:
    patch = "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n same\n\n-x\n+y\n\n"
    assert git_diffs(patch) == [Diff(path="/a", old="same\n\nx\n", new="same\n\ny\n")]


def test_files_without_a_line_of_git_are_kept_apart() -> None:
    patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n--- x\n+++ y\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-v\n+w\n"
    assert git_diffs(patch) == [
        Diff(path="/a", old="-- x\n", new="++ y\n"),
        Diff(path="/b", old="v\n", new="w\n"),
    ]


def test_quoted_paths_and_times_are_read() -> None:
    names = {
        '"b/\\303\\251 \\"1\\".txt"': '/é "1".txt',
        '"b/tab\\there"': "/tab\there",
        "b/my file\t": "/my file",
        "b/a\t2020-01-02 10:00:00": "/a",
    }
    for name, path in names.items():
        assert git_diffs(f"--- /dev/null\n+++ {name}\n@@ -0,0 +1 @@\n+x\n") == [
            Diff(path=path, new="x\n")
        ]
