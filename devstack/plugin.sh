# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# DevStack sources this at each of its phases: `plugin.sh MODE [PHASE]`.

# shellcheck source=devstack/lib/gsaas
source "$GSAAS_DIR/devstack/lib/gsaas"

case "$1/${2:-}" in
stack/pre-install)
    install_gsaas_packages
    ;;
stack/install)
    echo_summary "Installing GSaaS"
    install_gsaas
    ;;
stack/post-config)
    echo_summary "Configuring GSaaS, and Nova for it"
    configure_gsaas
    configure_nova_for_gsaas
    ;;
stack/extra)
    echo_summary "Starting GSaaS"
    init_gsaas
    start_gsaas
    ;;
unstack/)
    stop_gsaas
    unconfigure_nova_for_gsaas
    ;;
clean/)
    cleanup_gsaas
    ;;
esac
