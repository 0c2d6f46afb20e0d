end

-- Replies with the script's own reply, and for each key what it holds (a list of strings) and its noted expiry.
local decided = shipped()
local states, expiries = {}, {}
for i = 1, #KEYS do
  local kind = server.call('TYPE', KEYS[i]).ok
  if kind == 'string' then
    states[i] = { server.call('GET', KEYS[i]) }
  else
    states[i] = kind == 'list' and server.call('LRANGE', KEYS[i], 0, -1) or {}
  end
  expiries[i] = tonumber(server.call('HGET', EXPIRIES, KEYS[i]) or 0)
end
return { decided, states, expiries }
