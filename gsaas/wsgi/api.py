# SPDX-License-Identifier: Apache-2.0
"""`gsaas.wsgi.api:application`, for uWSGI, gunicorn or any other WSGI server.

The configuration is `/etc/gsaas/gsaas.conf`, or the files that the environment variable GSAAS_CONFIG_FILES names,
separated by colons. Importing this module raises an exception if the configuration cannot be used, which ends the
server.
"""

from __future__ import annotations

import os

from oslo_log import log

from gsaas import conf
from gsaas.wsgi import warm_up
from gsaas.wsgi.deployment import deploy

_config_files = os.environ.get("GSAAS_CONFIG_FILES")
_conf = conf.load(files=_config_files.split(os.pathsep) if _config_files else None)
log.setup(_conf, "gsaas")
conf.warn_of_problems(_conf)

application, _warm_up_tasks = deploy(_conf)
warm_up.schedule(_warm_up_tasks)
