-- Sliding window counter: the count of the current window and the share of the previous one's that a trailing window
-- still covers. Windows are aligned to the Unix epoch and half open. An estimate: it assumes that the previous
-- window's units were spread evenly, and can let nearly twice the limit into one trailing window.
--
-- Admits if previous * (W - elapsed) / W + current + cost <= limit. All but the first term are whole, so the first is
-- rounded up and nothing is lost.
--
-- State: string of 28 bytes, '>I7I7I7I7'
--   last      effective time of the last charge, µs; it names the current window
--   previous  units used in the window before, at most 999 999 999 999 999
--   current   units used in the current window, likewise
--   offset    effective time less Redis' time, µs
-- Expires at the end of the next window.

local function sliding_window_counter()
  local function pack(limit)
    return struct.pack('>I7I7I7I7', limit.at, limit.previous, limit.current, limit.offset)
  end

  return {
    read = function(limit)
      local at, offset, previous, current, window = limit.now, 0, 0, 0, limit.window
      local value = read_packed(limit.key, 28)
      if value then
        local last, older, newer, before = struct.unpack('>I7I7I7I7', value)
        local here, held = effective(at, last, before)
        local windows_later = ((here - here % window) - (last - last % window)) / window
        if windows_later < 2 then
          if windows_later == 1 then
            older, newer = newer, 0
          end
          at, offset, previous, current = here, held, older, newer
          limit.stepped = held > before
        end
      end
      local share, rest = mul_div(previous, window - at % window, window)
      if rest > 0 then
        share = share + 1
      end
      limit.at, limit.offset, limit.previous, limit.current = at, offset, previous, current
      limit.remaining = math.max(0, limit.limit - current - share)
    end,

    wait = function(limit, cost)
      local window = limit.window
      local until_next = window - limit.at % window
      local room = limit.limit - limit.current - cost
      if room >= 0 then
        -- In this window, once the previous one's share has shrunk to the room. It has one, else the cost would fit.
        return until_next - mul_div(room, window, limit.previous)
      end
      -- In the next window, where today's current count is the previous one and shrinks in its turn.
      return until_next + window - mul_div(limit.limit - cost, window, limit.current)
    end,

    charge = function(limit)
      limit.current = limit.current + limit.cost
      limit.remaining = limit.remaining - limit.cost
      write_packed(limit, pack(limit), 2 * limit.window - limit.at % limit.window)
    end,

    hold = function(limit)
      hold_packed(limit, pack(limit))
    end,
  }
end
