-- The one clock of a decision: that of the Redis master that holds the state. Callers' clocks never matter.
--
-- Microseconds since the Unix epoch, below 2^53 until the year 2255. `check.lua` calls this once a script, so all
-- limits of a request are decided at the same instant. Tests replace this file, and nothing else, to set the time.

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
