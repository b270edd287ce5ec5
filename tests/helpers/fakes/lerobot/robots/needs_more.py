"""A robot whose own package is not here."""

import a_package_that_nobody_has  # noqa: F401
