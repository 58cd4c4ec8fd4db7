"""`gsaas.wsgi.api:application`, for uWSGI, gunicorn or any other WSGI server.

The configuration is that of `/etc/gsaas/gsaas.conf`, or of the files that GSAAS_CONFIG_FILES names,
separated by colons. A configuration that cannot be used ends the server at once.
"""

from __future__ import annotations

import os

from oslo_log import log

from gsaas import conf
from gsaas.wsgi import warm_up
from gsaas.wsgi.deployment import deploy

_named = os.environ.get("GSAAS_CONFIG_FILES")
_conf = conf.load(files=_named.split(os.pathsep) if _named else None)
log.setup(_conf, "gsaas")

application, _tasks = deploy(_conf)
warm_up.later(_tasks)
