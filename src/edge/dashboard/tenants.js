// Tenants: what each used in the last minute, against what it may.

// From here on a tenant is close to its limit.
const CLOSE = 0.8;

function drawTenants(told) {
  $("tenants-box").hidden = $("tenants-link").hidden = told.tenants.length === 0;
  $("tenants-note").textContent = told.tenants_in_all > told.tenants.length ? `the busiest ${told.tenants.length} of ${count(told.tenants_in_all)}` : "used in the last minute, of what is allowed";
  fill($("tenants"), told.tenants.map((tenant) => ({
    key: tenant.name,
    cells: [
      { of: [tenant.name, tenant.priority], head: true, class: "name", build: () => [tenant.name, tenant.priority === "interactive" ? "" : make("span", { class: "sub" }, tenant.priority)] },
      usage(tenant.requests_last_minute, tenant.limits.rpm),
      usage(tenant.tokens_last_minute, tenant.limits.tpm),
      usage(tenant.running, tenant.limits.concurrent),
    ],
  })), "No tenant is configured.");
}

function usage(used, limit) {
  const share = known(limit) ? used / limit : 0;
  return {
    of: [used, limit],
    build: () => [make("span", { class: "used" }, short(used), make("span", { class: "dim" }, known(limit) ? ` of ${short(limit)}` : ", no limit")),
      share >= 1 ? [" ", pill("at its limit", "bad", "!")] : share >= CLOSE ? [" ", pill("close", "hold", "◐")] : "",
      known(limit) ? meter(used, limit, share >= CLOSE ? "slow" : "warm") : ""].flat(),
  };
}
