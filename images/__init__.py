# SPDX-License-Identifier: Apache-2.0
"""Container images of GSaaS: how they are built (`images.build`), and what starts in them (`images/start.py`)."""
