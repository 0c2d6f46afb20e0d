end

-- Polls a drained bucket: looks, and takes whatever is there, again and again. Replies with the sum of what it took.
-- Arguments after those of one limit: how often, µs between two polls, and those of the clock.
local COST = 5
local polls, step = tonumber(ARGV[7]), tonumber(ARGV[8])
local taken = 0
for _ = 1, polls do
  now = now + step
  ARGV[COST] = '0'
  local remaining = shipped()[2]
  if remaining > 0 then
    ARGV[COST] = string.format('%.0f', remaining)
    if shipped()[1] ~= 1 then
      error('what remained was refused')
    end
    taken = taken + remaining
  end
end
return taken
