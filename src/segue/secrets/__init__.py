"""Find secrets in text, and mask them before the text leaves segue.

Everything here is pure: no files, no network. `find_secrets` returns the secrets of a text,
`mask_text` replaces them, `mask_parts` also those that are split over several texts, and
`mask_value` those in JSON values. `segue.secrets.events` masks events and session rows.
"""

from segue.secrets.detector import Secret as Secret
from segue.secrets.detector import find_secrets as find_secrets
from segue.secrets.masks import mask_parts as mask_parts
from segue.secrets.masks import mask_text as mask_text
from segue.secrets.masks import mask_value as mask_value
