-- Stands in for clock.lua in tests: time is the last argument, and expiry is noted instead of met, since Redis would
-- expire keys by its own clock. What follows this text, up to fake_clock_end.lua, is the shipped script.
--
-- The last but one argument is 'expire' to drop state whose noted expiry has passed, as Redis would, or 'keep'.

local now = tonumber(ARGV[#ARGV])
local server = redis
local EXPIRIES = 'expiries' -- hash: key -> ms

local redis = {
  pcall = server.pcall,
  call = function(command, key, value, option, at)
    if command == 'SET' and option == 'PXAT' then
      server.call('HSET', EXPIRIES, key, at)
      return server.call('SET', key, value)
    elseif command == 'SET' and option == 'KEEPTTL' then
      return server.call('SET', key, value)
    elseif command == 'SET' then
      error('a state without expiry: ' .. key)
    elseif command == 'PEXPIREAT' then
      return server.call('HSET', EXPIRIES, key, value)
    elseif command == 'TIME' then
      error('a second look at the clock')
    elseif at ~= nil then
      return server.call(command, key, value, option, at)
    elseif option ~= nil then
      return server.call(command, key, value, option)
    elseif value ~= nil then
      return server.call(command, key, value)
    end
    return server.call(command, key)
  end,
}

local function now_us()
  return now
end

if ARGV[#ARGV - 1] == 'expire' then
  for i = 1, #KEYS do
    local expiry = server.call('HGET', EXPIRIES, KEYS[i])
    if expiry and math.floor(now / 1000) > tonumber(expiry) then
      server.call('DEL', KEYS[i])
    end
  end
end

local function shipped()
