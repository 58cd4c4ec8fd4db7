"""The Containerfiles and units of the images, read by parsers of others, and held against each other and the guide."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from gsaas.objects.gpu import EXCLUSIVE  # noqa: F401
from images.build import ROLES
