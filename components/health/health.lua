-- The health of every kind of the group dist.system, for Argo CD. All kinds report by one contract, so one script serves
-- them all: Ready, Reconciling and Stalled, each with the generation that it speaks of. What kstatus (Flux, kubectl,
-- Pulumi) calls Current is Healthy here, InProgress is Progressing, Failed is Degraded.
local health = {status = "Progressing", message = "the operator has not looked at it yet"}
local status = obj.status or {}
local generation = obj.metadata.generation

-- A verdict on an older generation is none: the spec has changed since.
if status.observedGeneration ~= nil and status.observedGeneration ~= generation then
  health.message = "the operator has not looked at the last change yet"
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  if condition.observedGeneration == nil or condition.observedGeneration == generation then
    conditions[condition.type] = condition
  end
end

local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

local function report(verdict, condition)
  health.status = verdict
  health.message = condition.message or condition.reason or ""
  return health
end

if is("Reconciling", "True") then
  return report("Progressing", conditions.Reconciling)
end
if is("Stalled", "True") then
  return report("Degraded", conditions.Stalled)
end
if is("Ready", "True") then
  return report("Healthy", conditions.Ready)
end
if conditions.Ready == nil then
  return health
end
-- Unknown: the operator holds back, for it was told to pause while there is something to do.
if is("Ready", "Unknown") and conditions.Ready.reason == "Paused" then
  return report("Suspended", conditions.Ready)
end
return report("Progressing", conditions.Ready)
