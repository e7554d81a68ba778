"""Convert values that older versions of segue have stored."""
