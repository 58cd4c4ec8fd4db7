# SPDX-License-Identifier: Apache-2.0
"""The page that launches a lease: what GPUs, and what runs with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, forms, messages, workflows

from gsaas_dashboard import cloud
from gsaas_dashboard.presentation import checks, launches, models
from gsaasclient import quantities

DEFAULT = "", _("the cloud's default")
"""The choice of who chooses nothing: value and text."""
MOST_CGPUS = 254
"""Masked addresses of a lease with the default prefix: the service has the last word."""


def number() -> Any:
    """Return a field for a number without Horizon's buttons beside it, which screen readers cannot name."""
    return forms.TextInput(attrs={"inputmode": "numeric"})


class MemoryField(forms.CharField):
    """A field for an amount of memory as people write it; its value is in MiB, None if it is empty."""

    def clean(self, value: Any) -> int | None:
        """Return the value. Raises `ValidationError`."""
        text = super().clean(value)
        try:
            return quantities.memory_mb(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(_("It %s.") % error) from error


class CgpuFields(forms.Form):
    """The fields of a request for cGPUs, which the check reads as well."""

    count = forms.IntegerField(
        label=_("Number of cGPUs"), min_value=1, max_value=MOST_CGPUS, initial=1, widget=number()
    )
    gpu_model = forms.ChoiceField(label=_("GPU"), choices=[DEFAULT], required=False)
    mode = forms.ChoiceField(
        label=_("Mode"),
        choices=[
            ("shared", _("shared: a part of a GPU each")),
            ("exclusive", _("exclusive: a whole GPU each")),
        ],
        initial="shared",
    )
    memory_mb = MemoryField(
        label=_("Memory of each cGPU"),
        initial=2048,
        required=False,
        help_text=_("Such as 2G; a number alone is MiB."),
    )
    locality = forms.ChoiceField(
        label=_("Locality"),
        choices=[
            ("any", _("any")),
            ("local", _("local: the VM runs on the host of its GPUs")),
            ("remote", _("remote: the VM runs on another host")),
        ],
        initial="any",
        required=False,
    )
    hosts = forms.ChoiceField(
        label=_("GPU hosts"),
        choices=[
            ("any", _("any")),
            ("one", _("one: all cGPUs on one host")),
            ("spread", _("spread: each cGPU on a host of its own")),
        ],
        initial="any",
        required=False,
    )
    policy = forms.ChoiceField(label=_("Policy"), choices=[DEFAULT], required=False)
    compute_capability = forms.RegexField(
        label=_("Compute capability, at least"),
        regex=r"^[0-9]{1,3}(\.[0-9]{1,3})?$",
        required=False,
        help_text=_("Such as 8.0."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        if launches.is_shared_without_memory(cleaned) and "memory_mb" not in self.errors:
            self.add_error("memory_mb", _("In shared mode, say how much memory each cGPU has."))
        return cleaned


def offered(
    request: HttpRequest, choices: Callable[[cloud.Scheduling], list[tuple[str, str]]]
) -> list[tuple[str, Any]]:
    """Return what *choices* finds, after the default; only the default if the API does not say."""
    try:
        found = cloud.do(request, choices)
    except exceptions.NotAuthorized:
        raise
    except exceptions.HorizonException:
        found = []  # the check on the same page says what is wrong
    return [DEFAULT, *found]


class CgpuCheck(CgpuFields):
    """The form that the check reads."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        # Which policies and models may be named is the service's to say.
        for name in ("policy", "gpu_model"):
            self.fields[name] = forms.CharField(required=False, max_length=300)

    def clean(self) -> dict[str, Any]:
        return super().clean()


class GpusAction(workflows.Action, CgpuFields):
    """The step of a launch that asks for GPUs."""

    name_of_lease = forms.CharField(
        label=_("Name"), max_length=255, required=False, help_text=_("Of the lease and its VM.")
    )
    wait = forms.ChoiceField(
        label=_("If it does not fit now"),
        choices=[
            (launches.NO_WAIT, _("refuse it")),
            ("600", _("wait in the queue for 10 minutes")),
            ("3600", _("wait in the queue for an hour")),
            ("86400", _("wait in the queue for a day")),
            (launches.FOREVER, _("wait in the queue without a limit")),
        ],
        initial=launches.NO_WAIT,
    )
    duration = forms.ChoiceField(
        label=_("How long"),
        choices=[
            ("", _("until it is released, if this cloud allows that")),
            ("3600", _("an hour, and then it is released")),
            ("28800", _("8 hours, and then it is released")),
            ("86400", _("a day, and then it is released")),
            ("604800", _("a week, and then it is released")),
        ],
        required=False,
    )
    first = ("name_of_lease", "count", "gpu_model", "mode", "memory_mb", "wait")
    """The fields that are seen at first; the others are folded."""
    field_order = first

    class Meta:
        name = _("GPUs")
        slug = "gpus"
        help_text_template = "gsaas_dashboard/_launch_help.html"

    def populate_policy_choices(self, request: HttpRequest, context: Any) -> list[tuple[str, Any]]:
        return offered(
            request, lambda gpus: [(p.name, p.name) for p in gpus.policies() if p.is_allowed]
        )

    def populate_gpu_model_choices(
        self, request: HttpRequest, context: Any
    ) -> list[tuple[str, Any]]:
        return offered(request, lambda gpus: models.choices(gpus.models()))

    def first_fields(self) -> list[Any]:
        return [self[name] for name in self.first]

    def advanced_fields(self) -> list[Any]:
        return [self[name] for name in self.fields if name not in self.first]

    def has_advanced_errors(self) -> bool:
        return any(field.errors for field in self.advanced_fields())

    def get_help_text(self, extra_context: dict[str, Any] | None = None) -> str:
        """Return the help text, with the answer to a check of the initial values."""
        given = getattr(self, "cleaned_data", {})
        complete = {"count", "mode"} <= given.keys() and not launches.is_shared_without_memory(
            given
        )
        asked = given if complete else {name: f.initial for name, f in self.fields.items()}
        answer, problem = check(self.request, asked)
        context = {"answer": answer, "problem": problem, **(extra_context or {})}
        text: str = super().get_help_text(context)
        return text


class GpusStep(workflows.Step):
    action_class = GpusAction
    template_name = "gsaas_dashboard/_cgpus.html"
    contributes = ("name_of_lease", "wait", "duration", *CgpuFields.base_fields)

    def contribute(self, data: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        context.update(data)
        return context


class ServerAction(workflows.Action):
    """The step of a launch that asks what runs with the GPUs."""

    image = forms.ChoiceField(
        label=_("Image"),
        required=False,
        help_text=_("Without a VM, programs that run already use the cGPUs."),
    )
    flavor = forms.ChoiceField(label=_("Flavor"), required=False)
    network = forms.ChoiceField(label=_("Network"), required=False)
    key_name = forms.ChoiceField(label=_("Key pair"), required=False)

    class Meta:
        name = _("Virtual machine")
        slug = "server"
        help_text = _(
            "The VM that boots with these cGPUs. GSaaS deletes it when the lease is released."
        )

    def __init__(self, request: HttpRequest, *args: Any, **more: Any) -> None:
        self._choices = cloud.Choices(request)
        super().__init__(request, *args, **more)
        for failure in self._choices.failures:
            self.help_text: str = f"{self.help_text} {failure}"

    def populate_image_choices(self, request: HttpRequest, context: Any) -> list[tuple[str, Any]]:
        none = (launches.NO_VM, _("no VM"))
        return [DEFAULT, *self._choices.images, none]

    def populate_flavor_choices(self, request: HttpRequest, context: Any) -> list[tuple[str, Any]]:
        return [DEFAULT, *self._choices.flavors]

    def populate_network_choices(self, request: HttpRequest, context: Any) -> list[tuple[str, Any]]:
        return [DEFAULT, *self._choices.networks]

    def populate_key_name_choices(
        self, request: HttpRequest, context: Any
    ) -> list[tuple[str, Any]]:
        return [("", _("none")), *self._choices.keypairs]


class ServerStep(workflows.Step):
    action_class = ServerAction
    contributes = ("image", "flavor", "network", "key_name")


class LaunchLease(workflows.Workflow):
    """Launches a lease."""

    slug = "launch_gpu_lease"
    name = _("Launch GPU Lease")
    finalize_button_name = _("Launch")
    success_message = _("The launch of %s has begun.")
    failure_message = _("%s could not be launched.")
    success_url = "horizon:project:gpu_leases:index"
    default_steps = (GpusStep, ServerStep)

    def format_status_message(self, message: Any) -> str:
        return str(message % (self.context.get("name_of_lease") or _("the lease")))

    def handle(self, request: HttpRequest, context: dict[str, Any]) -> bool:
        """Launch it. Raises `ValidationError`, which shows the page again as it was, if the service refuses."""
        fields = launches.lease({**context, "name": context.get("name_of_lease")})
        try:
            self.object = cloud.do(request, lambda gpus: gpus.create_lease(**fields))
        except exceptions.NotAuthorized:
            raise
        except exceptions.HorizonException as error:
            self._show(error)
            raise forms.ValidationError(str(error)) from error
        for note in self.object.notes or []:
            messages.info(request, note)
        return True

    def _show(self, error: exceptions.HorizonException) -> None:
        """Say why the service refuses the launch, at the fields that it concerns if it names some."""
        said = getattr(error, "error", None)
        fields = launches.undecided(said.facts) if said is not None else {}
        for name, sentence in fields.items():
            step = self.get_step(ServerAction.slug)
            step.has_errors = True  # so it is the step that is seen
            step.action.add_error(name, sentence)
        if not fields:
            self.add_error_to_step(refusal(error), GpusAction.slug)

    def get_success_url(self) -> str:
        return str(reverse(self.success_url))


def check(request: HttpRequest, form: dict[str, Any]) -> tuple[checks.Answer | None, str]:
    """Return whether the request of a *form* would fit now, or None and a sentence if that cannot be told."""
    try:
        found = cloud.do(request, lambda gpus: gpus.create_check(**launches.cgpus(form)))
        return checks.answer(found), ""
    except exceptions.NotAuthorized:
        raise
    except exceptions.HorizonException as error:
        return None, str(error)


def refusal(error: exceptions.HorizonException) -> str:
    """Return what the page says of a launch that was refused, with what would fit if the service says so."""
    said = getattr(error, "error", None)
    if said is None or not str(said.code).startswith("gsaas.capacity"):
        return f"The lease could not be launched: {error}"
    facts = {**said.facts, "fits": False, "code": said.code, "reason": str(said)}
    return checks.sentence(checks.answer(facts))
