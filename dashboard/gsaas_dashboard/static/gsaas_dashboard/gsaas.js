// SPDX-License-Identifier: Apache-2.0
// Two things that pages do by themselves: ask again whether a request fits when one of its fields changes, and show a
// lease again while its status is on its way. Without this script the pages work, and show what they showed at first.
(function () {
  "use strict";

  var CHECK = "[data-gsaas-check]";
  var REFRESH = "[data-gsaas-refresh]";
  var FIELDS = ["count", "mode", "memory_mb", "locality", "hosts", "policy", "gpu_model", "compute_capability"];
  var PAUSE = 350; // milliseconds without a change before the service is asked
  var timer = null;
  var asked = 0;

  function query(form) {
    var words = new URLSearchParams();
    FIELDS.forEach(function (name) {
      var field = form.elements[name];
      if (field && field.value) {
        words.set(name, field.value);
      }
    });
    return words.toString();
  }

  function ask(form, place) {
    asked += 1;
    var turn = asked;
    place.setAttribute("aria-busy", "true");
    window.fetch(place.getAttribute("data-gsaas-check") + "?" + query(form), {
      credentials: "same-origin",
      headers: { "X-Requested-With": "XMLHttpRequest" },
      redirect: "error"
    }).then(function (answer) {
      if (!answer.ok) {
        throw new Error(answer.status);
      }
      return answer.text();
    }).then(function (text) {
      if (turn === asked) {
        place.innerHTML = text; // escaped by the server's template
      }
    }).catch(function () {
      if (turn === asked) {
        place.textContent = "The dashboard does not answer. Whether this fits cannot be told.";
      }
    }).finally(function () {
      if (turn === asked) {
        place.removeAttribute("aria-busy");
      }
    });
  }

  function changed(event) {
    var form = event.target.form;
    var place = form && form.querySelector(CHECK);
    if (place && FIELDS.indexOf(event.target.name) >= 0) {
      window.clearTimeout(timer);
      timer = window.setTimeout(function () { ask(form, place); }, PAUSE);
    }
  }

  function busy(place) {
    return place.contains(document.activeElement) || place.querySelector("details[open]");
  }

  function refresh() {
    var place = document.querySelector(REFRESH);
    if (!place) {
      return;
    }
    window.setTimeout(function () {
      if (busy(place)) { // somebody reads or uses it: do not take it away
        refresh();
        return;
      }
      window.fetch(window.location.href, { credentials: "same-origin", redirect: "error" }).then(function (answer) {
        return answer.text();
      }).then(function (text) {
        var found = new DOMParser().parseFromString(text, "text/html").getElementById(place.id);
        if (found && !busy(place)) {
          place.replaceWith(found);
        }
        refresh();
      }).catch(refresh);
    }, 1000 * Number(place.getAttribute("data-gsaas-refresh")));
  }

  document.addEventListener("input", changed);
  document.addEventListener("change", changed);
  document.addEventListener("DOMContentLoaded", refresh);
}());
