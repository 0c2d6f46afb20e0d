-- One check: decides all limits of a request at one instant, charges all of them or none.
--
-- KEYS[i]  state of limit i; each key at most once
-- ARGV, six for each limit i, in the order of KEYS:
--   algorithm  'fw' fixed window, 'cw' calendar window, 'sl' sliding window log, 'sc' sliding window counter,
--              'tb' token bucket
--   limit      units per window, 1 to 999 999 999 999 999
--   window     ms, 1 to 316 224 000 000 (3660 days); not read by 'cw'
--   burst      units a token bucket holds, 1 to 999 999 999 999 999; not read by the others
--   cost       units to take, 0 to 999 999 999 999 999; 0 only looks
--   mode       'enforce', or 'shadow': evaluated, but takes no part in the verdict
-- and after those of all limits, four for each limit of 'cw', in the order of KEYS:
--   edges      where three windows in a row begin and where the last one ends, µs since the Unix epoch, never falling
-- Replies with four integers for each limit, in the order of KEYS, as they are after the decision:
--   allowed    1 if this limit admits the cost, else 0
--   remaining  the largest cost that fits now
--   reset      µs until more becomes available; 0 if nothing is used
--   retry      µs until the cost fits; 0 if it does now, -1 if it never can
-- and after those of all limits, one for each limit of 'cw', in the order of KEYS:
--   ends       end of its window, effective time, µs
-- Where the time lies outside the windows of a 'cw' limit, replies with one integer instead, the time, and writes
-- nothing for any limit.
--
-- Whatever can refuse or fail is read and decided before the first write. A refused check, and a cost of 0, write
-- nothing but an offset that grew because the clock went back (see state.lua).

local ARGUMENTS = 6

-- Redis runs this text anew with every call: an algorithm's functions are made when a limit needs them.
local algorithms = {}

local now = now_us()
local limits = {}
local allowed = true
for i = 1, #KEYS do
  local first = (i - 1) * ARGUMENTS
  local name = ARGV[first + 1]
  local algorithm = algorithms[name]
  if not algorithm then
    -- Not a table from name to function: it would be made anew with every call as well.
    if name == 'fw' then
      algorithm = fixed_window()
    elseif name == 'tb' then
      algorithm = token_bucket()
    elseif name == 'sc' then
      algorithm = sliding_window_counter()
    elseif name == 'sl' then
      algorithm = sliding_window_log()
    elseif name == 'cw' then
      algorithm = calendar_window(#KEYS * ARGUMENTS)
    end
    algorithms[name] = algorithm
  end
  local limit = {
    key = KEYS[i],
    now = now,
    algorithm = algorithm,
    limit = tonumber(ARGV[first + 2]),
    window = tonumber(ARGV[first + 3]) * 1000, -- µs from here on
    burst = tonumber(ARGV[first + 4]),
    cost = tonumber(ARGV[first + 5]),
    shadow = ARGV[first + 6] == 'shadow',
    stepped = false,
  }
  -- Sets `at` (effective time), `remaining` and `stepped` besides the algorithm's own fields.
  algorithm.read(limit)
  limit.admits = limit.cost <= limit.remaining
  if not (limit.admits or limit.shadow) then
    allowed = false
  end
  limits[i] = limit
end

local calendar = algorithms.cw
if calendar and calendar.outside then
  return { now }
end

local reply = {}
for i = 1, #limits do
  local limit = limits[i]
  local algorithm = limit.algorithm
  if allowed and limit.admits and limit.cost > 0 then
    algorithm.charge(limit)
  elseif limit.stepped then
    algorithm.hold(limit)
  end
  local capacity = algorithm == algorithms.tb and limit.burst or limit.limit
  local reset, retry = 0, 0
  if limit.remaining < capacity then
    reset = algorithm.wait(limit, limit.remaining + 1)
  end
  if not limit.admits then
    retry = limit.cost <= capacity and algorithm.wait(limit, limit.cost) or -1
  end
  local n = (i - 1) * 4
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = limit.admits and 1 or 0, limit.remaining, reset, retry
end
if calendar then
  for i = 1, #limits do
    reply[#reply + 1] = limits[i].ends -- nil, and so none, for other algorithms
  end
end
return reply
