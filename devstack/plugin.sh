# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# DevStack sources this at each of its phases: `plugin.sh MODE [PHASE]`.

# shellcheck source=devstack/lib/gsaas
source "$GSAAS_DIR/devstack/lib/gsaas"
# shellcheck source=devstack/lib/horizon
source "$GSAAS_DIR/devstack/lib/horizon"
# shellcheck source=devstack/lib/heat
source "$GSAAS_DIR/devstack/lib/heat"
# shellcheck source=devstack/lib/tempest
source "$GSAAS_DIR/devstack/lib/tempest"

case "$1/${2:-}" in
stack/pre-install)
    install_gsaas_packages
    ;;
stack/install)
    echo_summary "Installing GSaaS"
    install_gsaas
    if is_service_enabled horizon; then
        install_gsaas_dashboard
    fi
    if is_service_enabled h-eng; then
        install_gsaas_heat
    fi
    ;;
stack/post-config)
    echo_summary "Configuring GSaaS, and Nova for it"
    configure_gsaas
    configure_nova_for_gsaas
    if is_service_enabled horizon; then
        configure_horizon_for_gsaas
    fi
    if is_service_enabled h-eng; then
        configure_heat_for_gsaas
    fi
    ;;
stack/extra)
    echo_summary "Starting GSaaS"
    init_gsaas
    start_gsaas
    ;;
stack/test-config)
    if is_service_enabled tempest; then
        echo_summary "Configuring Tempest for GSaaS"
        install_gsaas_tempest_plugin
        configure_tempest_for_gsaas
    fi
    ;;
unstack/)
    stop_gsaas
    unconfigure_nova_for_gsaas
    unconfigure_horizon_for_gsaas
    ;;
clean/)
    cleanup_gsaas
    ;;
esac
