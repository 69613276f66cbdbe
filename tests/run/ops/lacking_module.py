"""A module that cannot be imported here."""

import unittest

raise unittest.SkipTest("there is no compiler")
