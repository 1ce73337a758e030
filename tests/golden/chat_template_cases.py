"""Small templates, each with one construct that chat templates use, for chat_templates.py --write."""

TALK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi \n"},
        {"role": "assistant", "content": "Hello 🙂"}, {"role": "user", "content": ""}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d \"q\" <é>", "parameters": {
    "type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": ["string", "null"]}}, "required": ["b"]}}}]
TALKING = {"messages": TALK, "add_generation_prompt": True}

# Expressions: the template is "{{ <expression> }}".
EXPRESSIONS = r"""
1 + 2 * 3 ** 2 // 4 % 5 - -1
7 // -2, -7 // 2, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2
1 / 2, 3 / 1, 1e3, 1.5e-7, 1e16, 123456789012345.0, 0.1 + 0.2, 2 ** 10, 2 ** -1, 1_000
true and none, 0 or 'x', not 1, not none, (1 and 2) or 3
1 < 2 < 3, 1 < 2 > 3, 'a' < 'b', [1, 2] < [1, 3], (1, 2) == (1, 2), [1] == (1,), 1 == 1.0, true == 1
'a' in 'abc', 'd' not in 'abc', 'x' in {'x': 1}, 2 in [1, 2], 2 in (1,), 'q' in undefined_thing
'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ missing
[1, 'a', none, true, 1.5, "it's", 'say "x"', 'both \' "', '\n\t\\', 'é\u200b\x07'], {'k': [1], 2: 'b', none: ()}
'abc'[0], 'abc'[-1], 'abc'[5], 'abcdef'[1:4], 'abcdef'[::-1], 'abcdef'[::2], 'héllo🙂'[1:3], 'héllo🙂'[-1], [1, 2, 3][1:], [1, 2, 3][:-1], (1, 2, 3)[::-1]
'x' * 3, 3 * 'ab', [0] * 2, 'a' + 'b', [1] + [2], (1,) + (2,)
'%s is %d, %.2f %5s|%-5s|%05d %x %% %r' % ('a', 3, 1.005, 'b', 'c', 42, 255, 'q'), '%s' % 'one', '%s' % none
'{} {} {{}}'.format(1, 'b'), '{0}{1}{0} {name}'.format('a', 'b', name='n')
1 if true else 2, (1 if false) is defined, 'x' if missing else 'y'
missing is defined, missing is undefined, messages is defined, none is none, messages is none
'a' is string, 1 is string, {} is mapping, [] is mapping, [] is sequence, 'a' is sequence, {} is sequence, 1 is sequence, missing is sequence
[] is iterable, 'a' is iterable, 1 is iterable, none is iterable, {} is iterable, range(2) is iterable, missing is iterable
1 is number, 1.0 is number, true is number, '1' is number, 1 is integer, true is integer, 1.0 is float, true is boolean, 1 is boolean
true is true, 1 is true, false is false, 3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2)
1 is eq 1, 1 is ne(2), 2 is gt 1, 2 is lessthan 1, 'a' is in ['a'], 1 is not in [1], none is sameas none, 'aB' is lower, 'AB1' is upper
not 1 is none, 1 is not none and 2 is not string
'filter' is filter, 'trim' is filter, 'odd' is test, range is callable, 1 is callable
'  a b '|trim, '..a.'|trim('.'), 'ab'|upper, 'ÄÉß'|lower, 'straße ﬁ'|upper, 'ΑΣ ΟΔΟΣ'|lower, 'hELLO wORLD'|capitalize, 'hello wor-ld (x) [y'|title
[3, 1, 2]|sort, ['b', 'A', 'c']|sort, ['b', 'A']|sort(case_sensitive=true), [1, 2]|sort(reverse=true), [{'a': 2}, {'a': 1}]|sort(attribute='a')
[1, 2, 3]|join, [1, 2]|join(', '), ['a', none]|join('-'), [{'n': 'x'}, {'n': 'y'}]|join('+', attribute='n'), 'abc'|join('.'), missing|join
[1, 2, 3]|length, 'héé'|length, {'a': 1}|length, missing|length, [1, 2]|count
[1, 2]|first, [1, 2]|last, 'ab'|first, 'ab'|last, []|first is defined, (1, 2)|last
missing|default('d'), none|default('d'), none|default('d', true), ''|default('e', boolean=true), 'v'|default('d'), missing|default, missing|d(1)
{'b': 1, 'a': 2}|items|list, {'b': 1, 'a': 2}|dictsort, {'b': 1, 'a': 2}|dictsort(by='value'), {'b': 1, 'A': 2}|dictsort(true), missing|items|list
[1, 2, 3]|map('string')|list, [{'a': 1}, {'b': 2}]|map(attribute='a', default='-')|list, ['a ', 'b']|map('trim')|join, ['x']|map('upper')|list, [{'a': {'b': [7]}}]|map(attribute='a.b.0')|list, ['a', 'b']|map('replace', 'a', 'c')|list
[1, 0, 2, none]|select|list, [1, 0, 2]|reject|list, [1, 2, 3]|select('odd')|list, [1, 2, 3]|reject('gt', 1)|list, ['a', 1]|select('string')|list
messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list, messages|rejectattr('role', 'in', ['user', 'system'])|list|length, messages|selectattr('content')|list|length, [{'a': 1}, {}]|selectattr('a', 'defined')|list
'a-b-c'|replace('-', '+'), 'a-b-c'|replace('-', '+', 1), 12|replace(1, 3), 'ab'|replace('', '.')
'12'|int, ' 3.7 '|int, 'x'|int, 'x'|int(5), 3.9|int, true|int, none|int, '0x1f'|int(base=16), '1_0'|int, '2.5'|float, 'x'|float(1.5), 3|float
2.5|round, 3.5|round, 2.675|round(2), 42.55|round(1, 'floor'), 42.55|round(1, 'ceil'), 5|round, -3|abs, 2.5|abs
[1, 2, 3]|sum, [{'n': 2}, {'n': 3}]|sum(attribute='n'), [3, 1, 2]|min, ['b', 'A']|max, []|min is defined, [{'a': 2}, {'a': 1}]|min(attribute='a')
[1, 2, 1, 3]|unique|list, ['a', 'A']|unique|list, [1, 2, 3]|reverse|list, 'abc'|reverse, (1, 2)|list, 'ab'|list, {'a': 1}|list
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> '), 'a\n'|indent(2), 'one two  three'|wordcount, 'ab'|center(6)
'<a href="x">&\'</a>'|e, ('<b>'|safe) + '<i>', '<i>' + ('<b>'|safe), ('<b>'|safe) ~ '<i>', 'x'|safe is escaped, ('<b>'|safe|upper) + '&', '<'|escape|escape
{'a': 1, 'b': [1, 2.0, none, true, 'é\n"\\/<>&\u2028\x01']}|tojson
{'b': {'x': []}, 'a': [1, {}], 'c': [[2]]}|tojson(indent=2)
{'b': 1, 'a': 'é🙂'}|tojson(sort_keys=true, ensure_ascii=true), [1, 2]|tojson(separators=(',', ':')), {1: 2, none: 3, true: 4, 1.5: 5}|tojson, 'x'|tojson, 1e100|tojson, (1, 2)|tojson, {'a': [1]}|tojson(indent='\t')
'a b  c'.split(), ' a b c '.split(none, 1), 'a,b,,c'.split(','), 'a,b,c'.split(',', 1), 'a,b,c'.rsplit(',', 1), 'a\nb\r\nc\n'.splitlines(), 'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'x'.partition('=')
'abc'.startswith('ab'), 'abc'.endswith(('x', 'c')), 'abcabc'.find('c'), 'abcabc'.rfind('c'), 'abc'.find('z'), 'éab'.index('a'), 'aXbX'.count('X'), 'ab'.count('')
'  x '.strip() ~ '|' ~ '  x '.lstrip() ~ '|' ~ '  x '.rstrip() ~ '|', 'xxaxx'.strip('x'), 'abc'.lstrip('ba'), 'a.b'.removeprefix('a.'), 'a.b'.removesuffix('.b'), 'x'.removesuffix('')
'Ab'.upper(), 'Ab'.lower(), 'they\'re bill\'s'.title(), 'ab CD'.capitalize(), 'aB'.swapcase(), 'a'.join(['1', '2']), '7'.zfill(3), '-7'.zfill(4), 'a'.ljust(3) ~ '|', 'a'.rjust(3, '*'), 'abc'.replace('b', 'x')
'1'.isdigit(), 'a1'.isalnum(), 'é'.isalpha(), ' '.isspace(), 'AB'.isupper(), 'aB'.islower(), ''.isdigit(), '²'.isdigit(), '½'.isnumeric(), 'x'.isascii()
{'a': 1}.get('a'), {'a': 1}.get('b'), {'a': 1}.get('b', 2), {'a': 1}.items()|list, {'a': 1}.keys()|list, {'a': 1}.values()|list, {'a': 1}.items(), {'a': 1}.keys()
[1, 2, 1].index(2), [1, 2, 1].count(1), (1, 2).index(2)
messages[0].role, messages[0]['content'], messages[-1].content == '', messages[0].nothing is defined, messages[9] is defined, messages[0]['items'] is defined, {'items': 1}.items is callable, {'items': 1}['items']
range(3)|list, range(1, 4)|list, range(5, 0, -2)|list, range(0)|list, range(3)[1], range(4)|length
dict(a=1, b=2), dict({'a': 1}, b=2), dict([('x', 1)]), namespace(a=1).a, namespace({'q': 2}).q, namespace().z is defined
strftime_now('%Y-%m-%d'), strftime_now('%d %b %Y'), strftime_now('%B %d, %Y %H:%M'), strftime_now('%A %j %y %-d')
'\x41\u00e9\U0001F642\101\q\a' 'joined'
(1, 2), (), (1,), [], {}
[missing, none] , {'a': missing}
1 if 2 if 0 else 1 else 3
-1|abs, -2 ** 2, not 1 == 2, 'a' ~ 'b' == 'ab', 1 + 2 ~ 3 + 4, 2 * 3 ~ 4
''.join(['a', 'b'])|upper, 'a,b'.split(',')[1].upper(), ('x')|length, [[1, 2], [3]][0][1], {'a': {'b': 'c'}}.a.b
"it's", 'a\
b'
10 is divisibleby 3 or 9 is divisibleby 3
'%s-%s' % ('a', 'b')|upper, 'A' in 'ABC' and 'D' not in 'ABC', 'x' not in [] and true
[1, 2, 3]|select('greaterthan', 1)|map('string')|join(','), {'x': [1, 2]}['x']|last, 'abc'[1:][0]
'a'|upper ~ 'b'|upper, 'abc'|list|reverse|join
9007199254740993 == 9007199254740992.0, 1 in [true], {1: 'a'}[true], {1: 'a'}[1.0], 1e400, -1e400, 0.1, 1e22, 1.0, 100000.0, 1e-5, 123e-7
'\r\n' is string, 'a\rb'|length
"""

REFUSED = r"""
missing.x
missing['x']
missing + 1
'a' + 1
1 + 'a'
[1] + (2,)
none|length
1|length
1 // 0
1.0 % 0
'a' < 1
none < 1
missing < 1
1 in 'abc'
1 in none
{'a': 1}.pop('a')
[1].append(2)
{[1]: 2}
'abc'|nofilter
'abc' is notest
raise_exception('no ' ~ 1)
missing|tojson
{(1, 2): 1}|tojson
'x'.split('')
'x'.nomethod()
'a'.join([1])
range(200000)
tools[1:]
missing[1:]
'%d' % 'a'
'%s %s' % ('a',)
'%s' % ('a', 'b')
'{} {}'.format(1)
{'a': 1}.get()
1()
none()
namespace(_x=1)
[3, 'a']|sort
missing|int
missing|dictsort
[1]|map('nofilter')|list
'a'[::0]
[{'a': 1}]|sum
'a,b'.index('z')
(1
'abc
1 +
a b
1 ! 2
'\N{BULLET}' ~ 'x' }} {{ missing.y
{1: 2
[1, 2
'a' is string is string
f(a=1, 2)
'a' if
"""

# Whole templates.
TEMPLATES = [
    ("chatml", "{% for m in messages %}\n{{ '<|im_start|>' + m.role + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}\n"
     "{% endfor %}\n{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}\n{% endif %}\n", TALKING),
    ("trim_and_lstrip", "a\n  {% if true %}  \nb\n  {% endif %}\nc {% if 1 %} d {% endif %} e\n   {# note #}\nf\n{#- g -#}\n h\n"
     "  {{ 1 }}\n{{ 2 -}}  \n {{- 3 }}\n{%+ if 1 %}x{% endif +%}\ny\n  {%- if 1 -%}  z  {%- endif %}\n", {}),
    ("crlf_and_last_newline", "a\r\nb\rc\n{{ 'x\r\ny' }}\r\n\n", {}),
    ("raw", "{% raw %} {{ x }} {% if %}{% endraw %}\n  {%- raw -%}  {{ y }}  {%- endraw -%}  z", {}),
    ("loop_variables", "{% for c in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
     "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }} {% endfor %}", {}),
    ("loop_filter_and_else", "{% for i in range(6) if i is odd %}{{ i }}{{ loop.last }}{{ loop.length }},{% else %}none{% endfor %}"
     "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1, 2] if i > 5 %}x{% else %}E{% endfor %}"
     "{% for i in missing %}x{% else %}M{% endfor %}", {}),
    ("loop_filter_sees_a_namespace", "{% set ns = namespace(n=0) %}{% for i in range(5) if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}", {}),
    ("break_and_continue", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}"
     "{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}", {}),
    ("unpacking", "{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{% endfor %}{% set a, b = 1, 'x' %}{{ a }}{{ b }}"
     "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% set (p, q) = 'xy' %}{{ p }}{{ q }}", {}),
    ("scopes", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"
     "{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% with x = 5, y = x %}{{ x }}{{ y }}{% set x = 6 %}{% endwith %}{{ x }}", {}),
    ("namespaces", "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}"
     "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ ns.other is defined }}", TALKING),
    ("macros", "{% macro f(a, b='B', c=none) -%}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{%- endmacro %}"
     "{{ f(1) }} {{ f(1, c=2) }} {{ f(1, 2, 3, 4, 5, z=6) }} {{ f() }}{% macro g(x, y=x ~ '!') %}{{ x }}{{ y }}{% endmacro %}{{ g('a') }}{{ g(y=1, x=2) }}", {}),
    ("macros_see_their_own_scope", "{% set x = 1 %}{% macro f() %}{{ x }}{{ i }}{{ later }}{% set x = 5 %}{{ x }}{% endmacro %}{% set later = 'L' %}"
     "{% for i in [7] %}{{ f() }}{% set x = 3 %}{{ f() }}{% endfor %}{% set x = 2 %}{{ f() }}{{ x }}", {}),
    ("recursive_macro", "{% macro show(x, d=0) %}{% if x is mapping %}{% for k, v in x|items %}{{ '  ' * d }}{{ k }}:\n{{ show(v, d + 1) }}{% endfor %}"
     "{% else %}{{ '  ' * d }}{{ x }}\n{% endif %}{% endmacro %}{{ show({'a': {'b': 1, 'c': {}}, 'd': [2]}) }}", {}),
    ("macro_text_is_a_string", "{% macro f() %} x {% endmacro %}{{ f()|trim }}{{ f() is string }}{{ f()|length }}{{ f is callable }}", {}),
    ("call_block", "{% macro box(t) %}[{{ t }}:{{ caller('in') }}]{% endmacro %}{% call(x) box('T') %}body {{ x }}{% endcall %}", {}),
    ("set_blocks", "{% set a %}x {{ 1 }} {% endset %}{{ a }}|{% set b | trim | upper %}  y {% endset %}{{ b }}{% set c %}{% set inner = 1 %}{% endset %}{{ inner is defined }}", {}),
    ("filter_block", "{% filter upper | replace('A', 'b') %}abc {{ 'x' }}{% endfilter %}", {}),
    ("elif", "{% for i in range(4) %}{% if i == 0 %}a{% elif i == 1 %}b{% elif i == 2 %}c{% else %}d{% endif %}{% endfor %}{% if false %}x{% elif false %}y{% endif %}", {}),
    ("generation", "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}"
     "{% else %}{{ m.content }}{% endif %}\n{% endfor %}", TALKING),
    ("generation_in_a_macro", "é{% macro f(x) %}[{% generation %}{{ x }}{% endgeneration %}]{% endmacro %}ab{{ f('12') }}{% set y %}{% generation %}q{% endgeneration %}{% endset %}{{ y }}"
     "{% generation %}{% set in = 1 %}{% endgeneration %}", {}),
    ("tools", "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{{ t | tojson(indent=4) }}\n{% for k, v in t.function.parameters.properties|dictsort %}"
     "{{ k }}: {{ v.type if v.type is string else v.type | join('|') }} {{ k in t.function.parameters.required }}\n{% endfor %}{% endfor %}{% endif %}", {"tools": TOOLS}),
    ("tools_are_none", "{{ tools is none }}{{ documents is none }}{{ tools is defined }}{{ add_generation_prompt }}", {}),
    ("special_tokens", "{{ bos_token }}{{ eos_token }}{{ sep_token is defined }}", {}),
    ("reasoning_fields", "{% for m in messages %}{{ m.reasoning_content is defined }}{{ m.thinking }}{{ m }}{% endfor %}",
     {"messages": [{"role": "assistant", "reasoning": "r", "content": "c"}, {"role": "user", "content": "x"}]}),
    ("kwargs", "{{ enable_thinking }}{{ depth + 1 }}", {"chat_template_kwargs": {"enable_thinking": False, "depth": 2}}),
    ("roles_must_alternate", "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}", TALKING),
    ("print_tag", "{% print 1 + 1 %}", {}),
    ("unknown_filter_that_is_not_reached", "{% if false %}{{ 1 | from_json }}{% endif %}ok{{ 1 | from_json if false }}", {}),
    ("unknown_filter", "{% if true %}{{ 1 | from_json }}{% endif %}", {}),
    ("unknown_tag", "{% frobnicate %}", {}),
    ("do", "{% do 1 %}", {}),
    ("unclosed_if", "{% if 1 %}x", {}),
    ("unclosed_comment", "x {# y", {}),
    ("wrong_end", "{% if 1 %}x{% endfor %}", {}),
    ("break_outside", "{% break %}", {}),
    ("set_of_no_namespace", "{% set x = {} %}{% set x.y = 1 %}", {}),
    ("generators_are_true_and_empty_once", "{% set g = [0] | select %}{{ 'T' if g else 'F' }}{% set h = [1, 2] | map('string') %}{{ h | list }}{{ h | list }}", {}),
    ("length_of_a_generator", "{{ ([1] | map('string')) | length }}", {}),
    ("too_many_values", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", {}),
    ("macro_with_too_many_arguments", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", {}),
    ("macro_with_an_unknown_keyword", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", {}),
    ("endless_recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", {}),
    ("comment_in_a_loop", "{%- for m in messages -%}\n  {#- c -#}\n  {{- m.content | trim -}}\n{%- endfor -%}", TALKING),
    ("one_line_if_in_set", "{% set s = messages[0].content if messages and messages[0].role == 'system' else '' %}{{ s }}{% set rest = messages[1:] if s else messages %}{{ rest | length }}", TALKING),
    ("last_user_index", "{% set ns = namespace(i=-1) %}{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}"
     "{% if ns.i < 0 and m.role == 'user' and not (m.content.startswith('<t>') and m.content.endswith('</t>')) %}{% set ns.i = index %}{% endif %}{% endfor %}{{ ns.i }}", TALKING),
    ("content_in_parts", "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
     {"messages": [{"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "B"}]}, {"role": "user", "content": "C"}]}),
    ("think_is_cut", "{% set c = messages[0].content %}{{ c.split('</think>')[-1].lstrip('\\n') }}|{{ c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
     {"messages": [{"role": "assistant", "content": "<think>\nwhy\n</think>\n\nfour"}]}),
    ("numbers_of_json", "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ [a, b, c] | tojson }}", {"chat_template_kwargs": {"a": 1.0, "b": -0.0, "c": 1e-7, "d": 9223372036854775807, "e": True}}),
]


def lines(text):
    out, expression = [], ""
    for line in text.strip("\n").split("\n"):
        expression += line
        if line.endswith("\\"):
            expression += "\n"
            continue
        out.append(expression)
        expression = ""
    return out


# Integers beyond 64 bits, which Python keeps, beside the last ones within; long decimals. `n` is a tool's schema.
WIDE = {"big": 12345678901234567890123, "neg": -9223372036854775809, "edge": 9223372036854775807,
        "low": -9223372036854775808, "unsigned": 18446744073709551615, "round": 10 ** 22,
        "long": 0.1234567890123456789012345678901234567890, "tiny": 1e-400, "huge": 1.7976931348623157e308,
        "power": 1E5, "digits": int("9" * 400)}
NUMBERS = r"""
tools[0].n
tools[0].n|tojson
tools|tojson(indent=1)
tools[0].n|tojson(sort_keys=true, separators=(',', ':')), {tools[0].n.big: 1}|tojson
tools[0].n.big ~ '', '%s' % tools[0].n.big, tools[0].n.neg|string, [tools[0].n.unsigned]|join
tools[0].n.big is number, tools[0].n.big is integer, tools[0].n.big is float, tools[0].n.big is string, tools[0].n.big is mapping, tools[0].n.big is iterable, tools[0].n.big is odd, tools[0].n.neg is even, tools[0].n.round is even
tools[0].n.big == tools[0].n.big, tools[0].n.big == 1, tools[0].n.round == 1e22, tools[0].n.big == 1.2345678901234568e22, tools[0].n.big != tools[0].n.round, tools[0].n.big == '12345678901234567890123'
tools[0].n.big > 5, 5 < tools[0].n.big, tools[0].n.neg < tools[0].n.low, tools[0].n.unsigned > tools[0].n.edge, tools[0].n.big < 1e23, tools[0].n.big < 1e22, tools[0].n.neg > -1e19, tools[0].n.big >= tools[0].n.digits, tools[0].n.digits > 1.5
[tools[0].n.big, 3, tools[0].n.neg, 2.5, tools[0].n.round]|sort, [tools[0].n.big, tools[0].n.round]|min, [1, tools[0].n.big]|max
'yes' if tools[0].n.neg else 'no', tools[0].n.big|int, tools[0].n.big|float, tools[0].n.round in [1e22], tools[0].n.big|round, tools[0].n.big.other is defined
{tools[0].n.round: 'a'}[1e22], {tools[0].n.big: 'b'}[tools[0].n.big]
"""
CASES = [("expression: " + e, "{{ " + e + " }}", TALKING) for e in lines(EXPRESSIONS)]
CASES += [("refused: " + e, "{{ " + e + " }}", TALKING) for e in lines(REFUSED)]
CASES += TEMPLATES
CASES += [("number: " + e, "{{ " + e + " }}", dict(TALKING, tools=[{"n": WIDE}])) for e in lines(NUMBERS)]
