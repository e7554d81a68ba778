"""The picker: `segue` alone in a terminal. Recent sessions, search as you type, a preview.

`choices` is what is shown and what is selected, `view` how that looks, `terminal` the terminal, and
`picker` what the keys do. All of it is our own, since a library for such screens takes longer to
import than the first screen takes to appear.
"""
