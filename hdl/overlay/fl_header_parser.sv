// SPDX-License-Identifier: Apache-2.0 OR MIT
// Header parser of the run-time programmable machine: validity bits and fields of the headers of a packet.
//
//   window ─► link ─► IP ─► extension x 4 ─► transport ─► user header ─► fields ─► fields_o
//   time ─► clocks ────────────────────────────────────────────────────► fields_o
//
// Parses as `wire::Layers` does, up to the transport header and a user-defined header, without TCP options. slow_o
// marks a packet with a present header beyond the window; it has no valid header.
//
// Latency: 22 cycles.
// Throughput: one packet a cycle.
// Handshake: none; data moves every cycle.
module fl_header_parser
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned WindowBytes = 128,
    parameter int unsigned SidebandBits = 1
) (
    input  logic                     clk_i,
    input  config_t                  config_i,
    // The packet's first bytes, the first one in the lowest bits; 0 after its end.
    input  logic [8*WindowBytes-1:0] window_i,
    input  logic [15:0]              length_i,
    input  logic [31:0]              port_i,
    input  logic [63:0]              time_i,
    input  logic                     bank_i,
    input  logic [SidebandBits-1:0]  sideband_i,
    output logic                     slow_o,
    output logic [31:0]              valid_o,
    output words_t                   fields_o,
    output headers_t                 headers_o,
    output places_t                  places_o,
    output logic                     bank_o,
    output logic [SidebandBits-1:0]  sideband_o
);

  localparam int unsigned EthernetBytes = 14;
  localparam int unsigned Latency = 22;
  localparam int unsigned Extensions = 4;
  // Words after Ethernet; the last one is a half.
  localparam int unsigned WindowWords = (WindowBytes - EthernetBytes + 2) / 4;
  // Cycles before the parts of the parser.
  localparam int unsigned BeforeIp = 2;
  localparam int unsigned BeforeExtensions = 4;
  localparam int unsigned BeforeTransport = BeforeExtensions + 2 * Extensions;
  localparam int unsigned BeforeUser = BeforeTransport + 4;
  localparam int unsigned BeforeWords = BeforeUser + 2;
  localparam int unsigned BeforeFields = BeforeUser + 4;

  typedef struct packed {
    logic [8*EthernetBytes-1:0]    ethernet;
    logic [WindowWords-1:0][31:0]  words;
  } window_t;

  typedef struct packed {
    logic [15:0]             length;
    logic [31:0]             port;
    logic                    bank;
    logic [SidebandBits-1:0] sideband;
  } beside_t;

  // By cycle.
  window_t window[BeforeWords+1];
  beside_t beside[Latency+1];

  always_comb begin
    for (int unsigned i = 0; i < EthernetBytes; i++) begin
      window[0].ethernet[8*(EthernetBytes-1-i)+:8] = window_i[8*i+:8];
    end
    window[0].words = '0;
    for (int unsigned i = EthernetBytes; i < WindowBytes; i++) begin
      window[0].words[(i-EthernetBytes)/4][8*(3-(i-EthernetBytes)%4)+:8] = window_i[8*i+:8];
    end
    beside[0] = '{length: length_i, port: port_i, bank: bank_i, sideband: sideband_i};
  end

  for (genvar i = 1; i <= BeforeWords; i++) begin : gen_window
    window_t window_q;
    always_ff @(posedge clk_i) window_q <= window[i-1];
    assign window[i] = window_q;
  end

  for (genvar i = 1; i <= Latency; i++) begin : gen_beside
    beside_t beside_q;
    always_ff @(posedge clk_i) beside_q <= beside[i-1];
    assign beside[i] = beside_q;
  end

  // ---- The parts of the parser.

  parse_t           linked, parsed;
  parse_t           extended[Extensions+1];
  parse_t           transported;
  logic             may_be_4, may_be_6;
  logic [4:0][31:0] transport;
  logic [7:0][31:0] user;

  fl_parse_link u_link (
      .clk_i,
      .type_i(window[0].ethernet[15:0]),
      .words_i(window[0].words[5:0]),
      .length_i,
      .parse_o(linked),
      .may_be_4_o(may_be_4),
      .may_be_6_o(may_be_6)
  );

  fl_parse_ip #(.WindowWords(WindowWords)) u_ip (
      .clk_i,
      .window_i(window[BeforeIp].words),
      .parse_i(linked),
      .may_be_4_i(may_be_4),
      .may_be_6_i(may_be_6),
      .parse_o(extended[0])
  );

  for (genvar i = 0; i < Extensions; i++) begin : gen_extension
    fl_parse_extension #(.WindowWords(WindowWords)) u_extension (
        .clk_i,
        .window_i(window[BeforeExtensions+2*i].words),
        .parse_i(extended[i]),
        .parse_o(extended[i+1])
    );
  end

  fl_parse_transport #(.WindowWords(WindowWords)) u_transport (
      .clk_i,
      .window_i(window[BeforeTransport].words),
      .parse_i(extended[Extensions]),
      .words_o(transport),
      .parse_o(transported)
  );

  // The words of the transport header, from two cycles before the part for user headers on.
  logic [4:0][31:0] transport_at[BeforeFields-BeforeTransport-1];
  parse_t           late;

  assign transport_at[0] = transport;
  for (genvar i = 1; i < BeforeFields - BeforeTransport - 1; i++) begin : gen_transport
    logic [4:0][31:0] transport_q;
    always_ff @(posedge clk_i) transport_q <= transport_at[i-1];
    assign transport_at[i] = transport_q;
  end

  fl_parse_user #(.WindowWords(WindowWords)) u_user (
      .clk_i,
      .config_i,
      .bank_i(beside[BeforeUser].bank),
      .transport_i(transport_at[2]),
      .parse_i(transported),
      .next_bank_i(beside[BeforeUser+1].bank),
      .late_window_i(window[BeforeWords].words),
      .late_parse_o(late),
      .words_o(user),
      .parse_o(parsed)
  );

  // ---- The words of the other headers.

  logic [111:0]     ethernet_q, ethernet2_q;
  logic [1:0][31:0] vlan_q, vlan2_q, fragment;
  logic [3:0][31:0] mpls_d, mpls_q, mpls2_q;
  logic [9:0][31:0] ip_d, ip_q, ip2_q;
  logic [1:0]       tags;
  headers_t         headers, headers_q;
  places_t          places, places_q;

  fl_window_words #(
      .WindowWords(WindowWords),
      .Words(2)
  ) u_fragment (
      .clk_i,
      .window_i(window[BeforeWords].words),
      .at_i(late.fragment_at),
      .words_o(fragment)
  );

  assign tags = 2'(late.valid[Vlan]) + 2'(late.valid[Vlan2]);
  always_comb begin
    mpls_d = '0;
    for (int unsigned i = 0; i < 4; i++) begin
      for (int unsigned at = 0; at < 3; at++) begin
        if (tags == 2'(at)) mpls_d[i] |= window[BeforeWords].words[at+i];
      end
    end
    ip_d = '0;
    for (int unsigned i = 0; i < 10; i++) begin
      for (int unsigned at = 0; at < 7; at++) begin
        if (at + i < WindowWords && late.ip_at[2:0] == 3'(at)) ip_d[i] |= window[BeforeWords].words[at+i];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    ethernet_q  <= window[BeforeWords].ethernet;
    ethernet2_q <= ethernet_q;
    vlan_q      <= window[BeforeWords].words[1:0];
    vlan2_q     <= vlan_q;
    mpls_q      <= mpls_d;
    mpls2_q     <= mpls_q;
    ip_q        <= ip_d;
    ip2_q       <= ip_q;
  end

  assign headers = '{ethernet: ethernet2_q, vlan: vlan2_q, mpls: mpls2_q, ip: ip2_q, fragment: fragment,
                     transport: transport_at[BeforeFields-BeforeTransport-2], user: user};
  assign places = '{ip: parsed.ip_at, fragment: parsed.fragment_at, transport: parsed.transport_at,
                    user: parsed.user_at};

  // ---- The fields; the clocks.

  logic                    slow_q;
  logic [31:0]             valid, valid_q;
  words_t                  fields;
  logic [1:0][31:0]        clocks;

  assign valid = parsed.slow ? '0 : parsed.valid;

  fl_parse_fields u_fields (
      .clk_i,
      .config_i,
      .bank_i(beside[BeforeFields].bank),
      .valid_i(valid),
      .headers_i(headers),
      .proto_i(parsed.proto),
      .left_i(parsed.left),
      .length_i(beside[BeforeFields].length),
      .port_i(beside[BeforeFields].port),
      .fields_o(fields)
  );

  fl_clock_units #(.Cycles(Latency)) u_clocks (
      .clk_i,
      .config_i,
      .bank_i,
      .time_i,
      .clocks_o(clocks)
  );

  always_ff @(posedge clk_i) begin
    headers_q <= headers;
    headers_o <= headers_q;
    places_q  <= places;
    places_o  <= places_q;
    slow_q    <= parsed.slow;
    slow_o    <= slow_q;
    valid_q   <= valid;
    valid_o   <= valid_q;
  end

  always_comb begin
    fields_o = fields;
    fields_o[Clock0] = clocks[0];
    fields_o[Clock1] = clocks[1];
  end

  assign bank_o     = beside[Latency].bank;
  assign sideband_o = beside[Latency].sideband;

  logic unused;
  assign unused = ^{parsed.active, parsed.at, parsed.room, parsed.half, late};

  if (WindowBytes == 0 || WindowBytes % 64 != 0 || WindowBytes > 256) begin : gen_bad_window
    $error("WindowBytes is %0d, expected 64, 128, 192 or 256", WindowBytes);
  end

endmodule
